"""Decoding on the clock: sessions, meters, the device."""
