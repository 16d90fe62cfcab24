"""Environments of attempts: read from run folders, stored, and looked up; digests of images."""
