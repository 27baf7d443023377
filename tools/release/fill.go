package main

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
)

// images replaces the tag latest by a version in files of the checkout that name the programs' images.
type images struct {
	programs []string
	version  string
}

// fill also returns the number of replaced tags.
func (i images) fill(text []byte) ([]byte, int) {
	names := strings.Join(i.programs, "|")
	latest := regexp.MustCompile(`(?m)^(\s*(?:- )?image: (?:` + names + `)):latest\b`)
	return latest.ReplaceAll(text, []byte("${1}:"+i.version)), len(latest.FindAll(text, -1))
}

// complete rejects a text that still names a program's image with the tag latest.
func (i images) complete(file string, text []byte) error {
	for _, name := range i.programs {
		if strings.Contains(string(text), name+":latest") {
			return fmt.Errorf("%s names the image %s:latest in a form that is not filled in: write \"image: %[2]s:latest\"",
				file, name)
		}
	}
	return nil
}

// manifests copies the manifests, with the version filled in.
func (i images) manifests(root, into string) error {
	files, err := filepath.Glob(filepath.Join(root, "deploy", "manifests", "*.yaml"))
	if err != nil {
		return err
	}
	filled := 0
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		text, here := i.fill(text)
		if err := i.complete(file, text); err != nil {
			return err
		}
		filled += here
		if err := os.WriteFile(filepath.Join(into, filepath.Base(file)), text, 0o644); err != nil {
			return err
		}
	}
	if filled == 0 {
		return fmt.Errorf("no manifest in %s names an image of the programs", filepath.Join(root, "deploy", "manifests"))
	}
	return nil
}
