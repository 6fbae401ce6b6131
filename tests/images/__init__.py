"""The images of `images/`, built and tried on a machine that can pull none: `bases` makes what they stand on out of
this machine's own files, `store` keeps them apart from the user's images, `build` builds them all.

`python -m tests.images [TARGET...]` builds.
"""
