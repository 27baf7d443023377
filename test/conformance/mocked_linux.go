package conformance

import (
	"context"
	"errors"
	"os"
	"path"
	"strings"

	"github.com/csi-reclaimer/csi-reclaimer/test/framework/nodes"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/program"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/rbac"
)

// startMocked gives the nodes the images of the manifests that the specs themselves apply, with the program that is
// judged in the one of external-provisioner. The driver's images are in the suite's folder.
func (c *cluster) startMocked(ctx context.Context) error {
	if _, err := c.readFolder(ctx, c.suite.Images); err != nil {
		return err
	}
	names, err := c.imageNames(ctx)
	if err != nil {
		return err
	}
	var images []nodes.Image
	for _, name := range names {
		binary, err := c.mockedProgram(ctx, name)
		if err != nil {
			return err
		}
		if binary == "" {
			continue
		}
		content, err := os.ReadFile(binary)
		if err != nil {
			return err
		}
		images = append(images, nodes.Image{Name: name, Command: []string{"/program"},
			Files: []nodes.File{{Path: "tmp/", Mode: 0o1777}, {Path: "program", Content: content}}})
	}
	if err := errors.Join(c.pool.Import(ctx, images...), c.keepImages(ctx)); err != nil {
		return err
	}
	if c.parts == Ours {
		// Each spec has a namespace and a service account of its own.
		if err := rbac.GrantSidecarToAll(ctx, c.client, "owner"); err != nil {
			return err
		}
	}
	binary, err := program.BuildStock(ctx, "snapshot-controller", c.progress)
	if err != nil {
		return err
	}
	return c.run(ctx, program.Options{Name: "snapshot-controller", Binary: binary,
		Args: []string{"--kubeconfig=" + c.kubeconfig}})
}

// mockedProgram returns the path of the program for an image of the manifests, and "" for other images.
func (c *cluster) mockedProgram(ctx context.Context, image string) (string, error) {
	name, _, _ := strings.Cut(path.Base(image), ":")
	switch {
	case name == provisionerName && c.parts == Ours:
		return program.BuildSidecar(ctx, c.progress)
	case name == provisionerName:
		return program.BuildProvisioner(ctx, c.progress)
	case name == "csi-attacher", name == "csi-resizer", name == "csi-snapshotter":
		return program.BuildStock(ctx, name, c.progress)
	}
	return "", nil
}
