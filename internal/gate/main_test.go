package gate

import (
	"testing"

	"go.uber.org/goleak"
)

// gnet starts goroutines of its own when it is loaded.
func TestMain(m *testing.M) { goleak.VerifyTestMain(m, goleak.IgnoreCurrent()) }
