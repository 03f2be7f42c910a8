package pipeline

// resize takes a new byte budget. Segments follow it in proportion: half the budget in whole segments would wait for half as many of
// them. What is in flight stays counted, what is parked is looked at again, and what is open is due by the new limits.
func (c *controller) resize(budget int64) {
	if budget == c.budget.Cap {
		return
	}
	was := c.budget.Cap
	c.budget.Cap, c.opt.Budget = budget, budget
	c.opt.Flush = c.configured.Flush.scaled(budget, c.configured.Budget)
	for _, p := range c.parts {
		c.plan(p)
	}
	c.opt.Log.Info("the byte budget has changed", "from", was, "to", budget)
}

// scaled are the limits of size for budget, where f are those for whole. No limit stays none, and a segment holds something.
func (f Flush) scaled(budget, whole int64) Flush {
	share := float64(budget) / float64(max(whole, 1))
	if f.Bytes > 0 {
		f.Bytes = max(1, int64(float64(f.Bytes)*share))
	}
	if f.Records > 0 {
		f.Records = max(1, int(float64(f.Records)*share))
	}
	return f
}
