"""`headgate submit`: evaluations that a cluster runs, as chains of links that go on from each other's journal."""
