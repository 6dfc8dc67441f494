package remoting

import (
	"context"
	"errors"
)

// Server owns the event loops, the listeners and the sessions. All methods may be called from any goroutine.
type Server struct {
	o Options
}

var errNotReady = errors.New("remoting: not ready")

// Start starts the event loops; listeners are added afterwards.
func Start(o Options) (*Server, error) {
	o, err := o.withDefaults()
	if err != nil {
		return nil, err
	}
	return &Server{o: o}, nil
}

// ListenNameServer opens the name-server listener and returns its port.
func (s *Server) ListenNameServer(addr string) (port int, err error) { return 0, errNotReady }

// OpenBroker listens on port and port-2 of host for clients of the broker at that real address.
func (s *Server) OpenBroker(broker, host string, port int) error { return errNotReady }

// CloseBroker closes the listeners of a broker; connections live on until one side ends them.
func (s *Server) CloseBroker(broker string) {}

// Connections is the number of client connections.
func (s *Server) Connections() int { return 0 }

// Shutdown drains and closes everything.
func (s *Server) Shutdown(ctx context.Context) error { return nil }
