"""From a request to a result: plan, train, judge, weigh, record."""
