package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"
)

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
