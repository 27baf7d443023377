package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"
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

// makeInstalls renders each kustomize base to a file for "kubectl apply -f". The bases are part of the release, too:
// they read its manifests, whose images have the version.
func (r *release) makeInstalls(context.Context) error {
	bases := filepath.Join(r.made, "kustomize")
	if err := os.CopyFS(bases, os.DirFS(filepath.Join(r.root, "deploy", "kustomize"))); err != nil {
		return err
	}
	into, err := r.folder("install")
	if err != nil {
		return err
	}
	programs, err := os.ReadDir(bases)
	if err != nil {
		return err
	}
	for _, program := range programs {
		if err := r.makeInstall(filepath.Join(bases, program.Name()), program.Name(), into); err != nil {
			return fmt.Errorf("kustomize base %s: %w", program.Name(), err)
		}
	}
	return nil
}

// makeInstall names the program in the file, because a forge attaches files to a release without their folders.
func (r *release) makeInstall(base, program, into string) error {
	options := krusty.MakeDefaultOptions()
	options.Reorder = krusty.ReorderOptionLegacy // as kubectl does: a Namespace comes before its objects
	objects, err := krusty.MakeKustomizer(options).Run(filesys.MakeFsOnDisk(), base)
	if err != nil {
		return err
	}
	text, err := objects.AsYaml()
	if err != nil {
		return err
	}
	file := filepath.Join(into, program+"-install.yaml")
	if err := r.images.complete(file, text); err != nil {
		return err
	}
	head := fmt.Sprintf("# %s %s: the objects of kustomize/%[1]s in this release, see docs/how-to/install.md.\n", program,
		r.version)
	return os.WriteFile(file, append([]byte(head), text...), 0o644)
}
