"""Budgets of a campaign: what each request is asked before it is sent, and which models wait for room."""

from headgate.campaign.budgets.account import Account, BudgetStop
from headgate.campaign.budgets.conversation import ConversationBudget, conversation_budget
from headgate.campaign.budgets.keeper import Budgets
from headgate.campaign.budgets.past import PastSpending
from headgate.campaign.budgets.planning import BudgetPlan, budget_plan
from headgate.campaign.budgets.restoring import restored_budgets

__all__ = [
    "Account",
    "BudgetPlan",
    "BudgetStop",
    "Budgets",
    "ConversationBudget",
    "PastSpending",
    "budget_plan",
    "conversation_budget",
    "restored_budgets",
]
