package toolchain_test

import (
	"context"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/delaygate/delaygate/compat_test/toolchain"
)

func TestAMissingToolIsOneClearLine(t *testing.T) {
	tools := []string{"go", "java", "javac", "mvn"}
	paths := map[string]string{}
	for _, tool := range tools {
		p, err := exec.LookPath(tool)
		if err != nil {
			t.Fatal(err)
		}
		paths[tool] = p
	}
	tc, err := toolchain.New(".", io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	for _, missing := range tools {
		t.Run(missing, func(t *testing.T) {
			dir := t.TempDir()
			for tool, p := range paths {
				if tool == missing {
					continue
				}
				if err := os.Symlink(p, filepath.Join(dir, tool)); err != nil {
					t.Fatal(err)
				}
			}
			t.Setenv("PATH", dir)
			err := tc.Check(context.Background())
			if err == nil || !strings.HasPrefix(err.Error(), missing+" is missing: install") || strings.Contains(err.Error(), "\n") {
				t.Errorf("got %v", err)
			}
		})
	}
}

func TestRootIsTheFolderOfGoMod(t *testing.T) {
	tc, err := toolchain.New(".", io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(tc.Root, "go.mod")); err != nil {
		t.Error(err)
	}
	if _, err := toolchain.New(string(filepath.Separator), io.Discard); err == nil {
		t.Error("found a module at the root of the file system")
	}
}
