//go:build unix

package process

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
)

// ModuleDir returns the folder of a module in the version that the project's go.mod requires, so that the module's data
// needs no copy here. PATH@VERSION names a module that need not be required. A module missing on the machine is
// downloaded and checked against go.sum or, without an entry there, against the checksum database.
func ModuleDir(ctx context.Context, path string) (string, error) {
	root, err := ModuleRoot()
	if err != nil {
		return "", fmt.Errorf("find module %s: %w", path, err)
	}
	var answer bytes.Buffer
	err = Run(ctx, Command{Name: "go mod download", Path: "go", Args: []string{"mod", "download", "-json", path},
		Dir: root,
		Env: []string{"GOWORK=off"}, Stdout: &answer})
	var module struct{ Dir, Error string }
	if decoded := json.Unmarshal(answer.Bytes(), &module); decoded == nil && module.Error != "" {
		return "", fmt.Errorf("find module %s: %s", path, module.Error) // says more than the exit status
	}
	if err != nil {
		return "", fmt.Errorf("find module %s: %w", path, err)
	}
	if module.Dir == "" {
		return "", fmt.Errorf("find module %s: the go command names no folder", path)
	}
	return module.Dir, nil
}
