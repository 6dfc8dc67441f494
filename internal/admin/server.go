package admin

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// Check is one condition of readiness. Err returns nil when it holds, else what is missing.
type Check struct {
	Name string
	Err  func() error
}

// Options configures a [Server].
type Options struct {
	// Addr is the host:port to listen on.
	Addr string
	// Ready are the conditions of /readyz, asked at each request.
	Ready []Check
	// Metrics is what /metrics shows.
	Metrics prometheus.Gatherer
	Log     *slog.Logger
}

// Server is a running HTTP server.
type Server struct {
	http *http.Server
	ln   net.Listener
	done chan struct{}
}

// Start listens and serves. A taken port is an error.
func Start(o Options) (*Server, error) {
	ln, err := net.Listen("tcp", o.Addr)
	if err != nil {
		return nil, fmt.Errorf("admin: listen on %s: %w", o.Addr, err)
	}
	s := &Server{
		http: &http.Server{Handler: handler(o), ReadHeaderTimeout: 5 * time.Second, IdleTimeout: time.Minute},
		ln:   ln,
		done: make(chan struct{}),
	}
	go func() {
		defer close(s.done)
		if err := s.http.Serve(ln); !errors.Is(err, http.ErrServerClosed) {
			o.Log.Error("admin server ended", "err", err)
		}
	}()
	return s, nil
}

// Addr returns the address that the server listens on.
func (s *Server) Addr() string { return s.ln.Addr().String() }

// Close ends the server once open requests are answered or ctx ends.
func (s *Server) Close(ctx context.Context) error {
	err := s.http.Shutdown(ctx)
	<-s.done
	return err
}

func handler(o Options) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "ok") })
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) { ready(w, o.Ready) })
	mux.Handle("GET /metrics", promhttp.HandlerFor(o.Metrics, promhttp.HandlerOpts{}))
	return mux
}

func ready(w http.ResponseWriter, checks []Check) {
	var missing []string
	for _, c := range checks {
		if err := c.Err(); err != nil {
			missing = append(missing, c.Name+": "+err.Error())
		}
	}
	if len(missing) > 0 {
		http.Error(w, strings.Join(missing, "\n"), http.StatusServiceUnavailable)
		return
	}
	fmt.Fprintln(w, "ready")
}
