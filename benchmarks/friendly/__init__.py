"""What a first run costs and gives: formats that are read, the time budget kept, TF-IDF beaten or not, 8-bit weights."""
