package server

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
)

// makeTarget creates an empty directory, or for a block volume an empty file, at a target path unless it exists, in a
// parent that the caller creates.
func makeTarget(path string, block bool) error {
	info, err := os.Lstat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return createTarget(path, block)
	case err != nil:
		return fmt.Errorf("look at target_path: %w", err)
	case block && !info.Mode().IsRegular(), !block && !info.IsDir():
		return invalid("target_path %q is there already, and is a %s", path, info.Mode().Type())
	}
	return nil
}

func createTarget(path string, block bool) error {
	if !block {
		if err := os.Mkdir(path, 0o750); err != nil {
			return fmt.Errorf("create target_path: %w", err)
		}
		return nil
	}
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o640)
	if err != nil {
		return fmt.Errorf("create target_path: %w", err)
	}
	return f.Close()
}

// removeTarget removes an empty target path, and returns an error for a directory with files, which remains.
func removeTarget(path string) error {
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove target_path: %w", err)
	}
	return nil
}

func mustBeDirectory(path string) error {
	info, err := os.Stat(path)
	if err != nil {
		return invalid("staging_target_path: %v", err)
	}
	if !info.IsDir() {
		return invalid("staging_target_path %q is not a directory", path)
	}
	return nil
}

// joined adds the error of an undo to the original error, which determines the code.
func joined(err, undo error) error {
	if undo == nil {
		return err
	}
	return fmt.Errorf("%w (and: %w)", err, undo)
}
