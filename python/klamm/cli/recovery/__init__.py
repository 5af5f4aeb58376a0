"""Forms a new quorum from the surviving nodes after the majority was lost: survivors, plan, execution."""
