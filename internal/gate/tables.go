package gate

import (
	"log/slog"
	"sync"

	"github.com/delaygate/delaygate/levels"
)

// tableCache keeps the level tables of the brokers, parsed once each.
type tableCache struct {
	log      *slog.Logger
	fallback levels.Table

	mu     sync.RWMutex
	byText map[string]levels.Table
}

// table returns the table that a broker's configuration spells. One that cannot be read is replaced by the configured
// one: the broker itself would not have started with it.
func (tc *tableCache) table(text string) levels.Table {
	tc.mu.RLock()
	t, ok := tc.byText[text]
	tc.mu.RUnlock()
	if ok {
		return t
	}
	t, err := levels.Parse(text)
	if err != nil {
		tc.log.Warn("a broker's level table cannot be read, the configured one serves", "table", text, "err", err)
		t = tc.fallback
	}
	tc.mu.Lock()
	defer tc.mu.Unlock()
	tc.byText[text] = t
	return t
}
