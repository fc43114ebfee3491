"""The workbench: runs decoders side by side, keeps what they did and shows it, in a browser or a terminal."""
