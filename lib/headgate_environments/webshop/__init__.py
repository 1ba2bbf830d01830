"""`agentgym:webshop`: buy what an instruction asks for in a shop of our own, with WebShop's pages and reward."""

from headgate_environments.webshop.environment import WebShopEnvironment, webshop

__all__ = ["WebShopEnvironment", "webshop"]
