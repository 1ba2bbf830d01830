"""`agentgym:webshop`: buy what an instruction asks for in a shop of our own, by WebShop's pages and rule."""

from headgate_environments.webshop.environment import WebShopEnvironment, webshop

__all__ = ["WebShopEnvironment", "webshop"]
