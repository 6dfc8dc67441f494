package main

import "testing"

// Every mutant still applies to the sources; whether the model test catches it takes longer than a test may.
func TestMutantsApply(t *testing.T) {
	dir, err := timerDir()
	if err != nil {
		t.Fatal(err)
	}
	names := map[string]bool{}
	for _, m := range mutants {
		if _, err := m.source(dir); err != nil {
			t.Errorf("%s: %v", m.name, err)
		}
		if names[m.name] {
			t.Errorf("%s is there twice", m.name)
		}
		names[m.name] = true
	}
}
