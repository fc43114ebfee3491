"""The results of studies, as plain data, and the file that keeps them."""
