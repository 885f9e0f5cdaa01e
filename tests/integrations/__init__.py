"""Programs that other people wrote, unchanged on the device: the extra `integrations`, which `make test` installs."""
