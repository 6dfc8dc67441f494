// Package config holds every setting of delaygate in one struct.
//
// Defaults come from [Default], then a YAML file, then DELAYGATE_* variables of the environment, then
// flags; each later source wins. The name of a variable is the key in upper case with dots as
// underscores: store.segment_bytes is DELAYGATE_STORE_SEGMENT_BYTES.
//
// A key that does not exist and a value that cannot be right are errors which name the key and say
// what is allowed. Variables that begin with DELAYGATE_ but name no key are only reported: Kubernetes
// sets some of that form by itself (DELAYGATE_SERVICE_HOST) where a service is called delaygate.
package config
