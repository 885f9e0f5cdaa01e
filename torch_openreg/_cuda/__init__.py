"""The device under the type "cuda", which TORCH_OPENREG_AS=cuda chooses. Without this folder there is no such type.

``_identity.py`` says what differs, ``_phases.py`` loads the device, and ``_attach.py`` makes torch.cuda its module.
"""
