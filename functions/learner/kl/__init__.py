"""The distance from the reference policy: estimators, the penalty in the reward and its coefficient."""
