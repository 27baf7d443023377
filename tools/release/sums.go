package main

import (
	"crypto/sha256"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// sumsFile is written last, so that a folder without it is not a release.
const sumsFile = "SHA256SUMS"

// sums writes the checksums of all files of a folder, sorted by name, in the format of sha256sum.
func sums(folder string) error {
	var lines strings.Builder
	err := filepath.WalkDir(folder, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		name, err := filepath.Rel(folder, path)
		if err != nil {
			return err
		}
		sum, err := sumOf(path)
		fmt.Fprintf(&lines, "%s  %s\n", sum, filepath.ToSlash(name))
		return err
	})
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(folder, sumsFile), []byte(lines.String()), 0o644)
}

func sumOf(path string) (string, error) {
	file, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer func() { _ = file.Close() }()
	sum := sha256.New()
	_, err = io.Copy(sum, file)
	return fmt.Sprintf("%x", sum.Sum(nil)), err
}
