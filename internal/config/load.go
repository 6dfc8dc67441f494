package config

import (
	"fmt"
	"sort"
	"strings"

	"github.com/go-viper/mapstructure/v2"
	"github.com/knadh/koanf/parsers/yaml"
	"github.com/knadh/koanf/providers/confmap"
	"github.com/knadh/koanf/providers/file"
	"github.com/knadh/koanf/providers/structs"
	"github.com/knadh/koanf/v2"
)

const envPrefix = "DELAYGATE_"

// Sources are the places that [Load] reads, weakest first.
type Sources struct {
	// File is the path of a YAML file, or empty.
	File string
	// Environ is os.Environ() of the process: NAME=value.
	Environ []string
	// Flags maps keys (store.sync) to what was given on the command line.
	Flags map[string]string
}

// Load merges the defaults with all sources and checks the result. The second value lists variables
// of the environment that look like settings but name no key.
func Load(src Sources) (Config, []string, error) {
	k := koanf.New(".")
	if err := k.Load(structs.Provider(Default(), "koanf"), nil); err != nil {
		return Config{}, nil, fmt.Errorf("read the defaults: %w", err)
	}
	known := k.Keys()
	if src.File != "" {
		if err := k.Load(file.Provider(src.File), yaml.Parser()); err != nil {
			return Config{}, nil, fmt.Errorf("read configuration file %s: %w", src.File, err)
		}
	}
	env, stray := fromEnviron(src.Environ, known)
	for _, layer := range []map[string]any{env, fromFlags(src.Flags)} {
		if err := k.Load(confmap.Provider(layer, "."), nil); err != nil {
			return Config{}, nil, fmt.Errorf("merge settings: %w", err)
		}
	}
	if err := unknownKeys(k.Keys(), known, src.File); err != nil {
		return Config{}, nil, err
	}
	var c Config
	if err := decode(k, &c); err != nil {
		return Config{}, nil, err
	}
	return c, stray, c.Validate()
}

func decode(k *koanf.Koanf, c *Config) error {
	err := k.UnmarshalWithConf("", c, koanf.UnmarshalConf{
		Tag: "koanf",
		DecoderConfig: &mapstructure.DecoderConfig{
			Result:           c,
			TagName:          "koanf",
			WeaklyTypedInput: true,
			DecodeHook:       mapstructure.StringToTimeDurationHookFunc(),
		},
	})
	if err != nil {
		// The library lists one failure a line.
		text := strings.Join(strings.Fields(strings.ReplaceAll(err.Error(), "decoding failed due to the following error(s):", "")), " ")
		return fmt.Errorf("settings: %s; times are written like 200ms, 30s or 960h (there is no unit for days), sizes as a number of bytes, lists as text in quotes", text)
	}
	return nil
}

func fromFlags(flags map[string]string) map[string]any {
	m := make(map[string]any, len(flags))
	for k, v := range flags {
		m[k] = v
	}
	return m
}

func fromEnviron(environ, known []string) (settings map[string]any, stray []string) {
	byName := make(map[string]string, len(known))
	for _, key := range known {
		byName[envPrefix+strings.ToUpper(strings.ReplaceAll(key, ".", "_"))] = key
	}
	settings = map[string]any{}
	for _, e := range environ {
		name, value, _ := strings.Cut(e, "=")
		if !strings.HasPrefix(name, envPrefix) {
			continue
		}
		if key, ok := byName[name]; ok {
			settings[key] = value
			continue
		}
		stray = append(stray, name)
	}
	sort.Strings(stray)
	return settings, stray
}

func unknownKeys(have, known []string, path string) error {
	ok := make(map[string]bool, len(known))
	for _, k := range known {
		ok[k] = true
	}
	for _, k := range have {
		if !ok[k] {
			return fmt.Errorf("configuration file %s: unknown key %q; the keys are %s", path, k, strings.Join(known, ", "))
		}
	}
	return nil
}
