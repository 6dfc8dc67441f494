package main

import (
	"errors"
	"fmt"
	"io"
	"log/slog"

	"github.com/delaygate/delaygate/internal/config"
)

type serveCmd struct {
	Config      string `help:"YAML file with any of the settings; flags win over it." placeholder:"FILE" type:"existingfile"`
	Listen      string `help:"Where clients ask for routes: their namesrvAddr (default 127.0.0.1:9876)." placeholder:"HOST:PORT"`
	Upstream    string `help:"The real name servers, separated by semicolons." placeholder:"NS1:9876;NS2:9876"`
	Data        string `help:"Folder for pending messages and the address book (default delaygate-data)." placeholder:"DIR"`
	BrokerPorts string `help:"Ports that stand for brokers, one every ten (default 20000-29990)." placeholder:"FIRST-LAST"`
	Admin       string `help:"HTTP for /healthz, /readyz and /metrics (default 127.0.0.1:9880)." placeholder:"HOST:PORT"`
	LogLevel    string `help:"debug, info, warn or error (default info)." placeholder:"LEVEL"`
	LogFormat   string `help:"text or json (default text)." placeholder:"FORMAT"`
}

// flags maps what was given on the command line to the keys of the configuration.
func (c *serveCmd) flags() map[string]string {
	m := map[string]string{}
	for key, v := range map[string]string{
		"listen": c.Listen, "upstream": c.Upstream, "data": c.Data, "broker_ports": c.BrokerPorts,
		"admin": c.Admin, "log.level": c.LogLevel, "log.format": c.LogFormat,
	} {
		if v != "" {
			m[key] = v
		}
	}
	return m
}

func (c *serveCmd) Run(p *process) error {
	cfg, stray, err := config.Load(config.Sources{File: c.Config, Environ: p.environ, Flags: c.flags()})
	if err != nil {
		return err
	}
	if len(cfg.NameServers()) == 0 {
		return errors.New(`no upstream: name the real name servers, for example --upstream "10.0.0.1:9876;10.0.0.2:9876"`)
	}
	log := newLogger(p.stderr, cfg.Log)
	if len(stray) > 0 {
		log.Warn("variables of the environment that name no setting are ignored", "names", stray)
	}
	a, err := start(cfg, log)
	if err != nil {
		return err
	}
	<-p.ctx.Done()
	log.Info("shutting down")
	return a.close()
}

func newLogger(w io.Writer, c config.Log) *slog.Logger {
	var level slog.Level
	if err := level.UnmarshalText([]byte(c.Level)); err != nil {
		panic(fmt.Sprintf("log level %q passed the configuration check", c.Level))
	}
	opts := &slog.HandlerOptions{Level: level}
	if c.Format == "json" {
		return slog.New(slog.NewJSONHandler(w, opts))
	}
	return slog.New(slog.NewTextHandler(w, opts))
}
