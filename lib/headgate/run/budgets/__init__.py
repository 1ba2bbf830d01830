"""Budgets of a campaign: what each request is asked before it is sent, and which models wait for room."""

from headgate.run.budgets.account import Account, BudgetStop
from headgate.run.budgets.conversation import ConversationBudget, conversation_budget, reply_length
from headgate.run.budgets.keeper import Budgets, refuse_unpriced
from headgate.run.budgets.past import PastSpending
from headgate.run.budgets.plan import BudgetPlan, CostPlan, budget_plan, cost_plan, rate_plan, restored_budgets

__all__ = [
    "Account",
    "BudgetPlan",
    "BudgetStop",
    "Budgets",
    "ConversationBudget",
    "CostPlan",
    "PastSpending",
    "budget_plan",
    "conversation_budget",
    "cost_plan",
    "rate_plan",
    "refuse_unpriced",
    "reply_length",
    "restored_budgets",
]
