"""Writes a backend of another name from the sources of this one: ``python -m torch_openreg new NAME --output DIR``.

``naming`` decides which names a device can have, and what each name of the sources becomes. ``parts`` lists the files
of a new backend, and what differs in them. ``writing`` puts the two together. ``texts`` holds the pages that only a new
backend has. ``archive`` packs the sources into the file sources.zip, which a wheel carries, so the command works
without a checkout.
"""
