"""Writes a backend of another name from the sources of this one: ``python -m torch_openreg new NAME --output DIR``.

``naming`` decides which names a device can have, and what each name of the sources becomes. ``parts`` lists the files
of a new backend, and what differs in them. ``writing`` puts the two together. ``texts`` holds the pages that only a new
backend has. ``archive`` packs all of this for a wheel. The folder is a part of the sources, because it works on the
sources.
"""
