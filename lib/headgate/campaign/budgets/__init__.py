"""Budgets of a campaign: what each request is asked before it is sent, and which models wait for room."""

from headgate.campaign.budgets.conversation import ConversationBudget
from headgate.campaign.budgets.keeper import Account, Budgets, BudgetStop
from headgate.campaign.budgets.past import PastSpending
from headgate.campaign.budgets.restoring import restored_budgets

__all__ = ["Account", "BudgetStop", "Budgets", "ConversationBudget", "PastSpending", "restored_budgets"]
