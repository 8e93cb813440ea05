"""Reading rows from any table file, and writing files and folders that are whole or absent."""
