"""Writes a backend of another name from the sources of this one: ``python -m torch_openreg new NAME --output DIR``.

``naming`` says which names a device can have, and what each name of the sources becomes. ``parts`` says of which files
a new backend consists, and what is different in them. ``writing`` puts the two together. ``texts`` holds the pages that
a new backend has of its own. ``archive`` packs all of it for a wheel. The folder is a part of the sources, because the
sources are what it works on.
"""
