"""Plans: what a run costs at other sizes and on other machines, from rates measured on this one."""
