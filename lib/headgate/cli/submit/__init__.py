"""`headgate submit`: evaluations on a cluster, as chains of links, each of which continues from the journal."""
