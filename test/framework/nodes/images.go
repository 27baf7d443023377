//go:build linux

package nodes

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"

	"github.com/csi-reclaimer/csi-reclaimer/test/framework/process"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/program"
)

// images are the nodes' images: each has one program and its command. A program that uses the network is linked without
// the C library, which is not in the image.
var images = map[string]struct {
	program string
	flags   []string
	args    []string
}{
	PauseImage:  {program: "writer", args: []string{"pause"}},
	WriterImage: {program: "writer"},
	FencerImage: {program: "fencer", flags: []string{"-tags=netgo"}},
}

// ProvisionerImage is the image that external-provisioner publishes, of the version in
// tools/external-provisioner/go.mod.
const ProvisionerImage = "registry.k8s.io/sig-storage/csi-provisioner:" + program.ProvisionerVersion

// ImportProvisioner compiles the stock external-provisioner, and gives it to the nodes as [ProvisionerImage].
func (p *Pool) ImportProvisioner(ctx context.Context) error {
	binary, err := program.BuildProvisioner(ctx, p.options.Progress)
	if err != nil {
		return err
	}
	return p.importProgram(ctx, ProvisionerImage, binary)
}

// ImportPause gives the nodes a copy of [PauseImage] under another name.
func (p *Pool) ImportPause(ctx context.Context, image string) error {
	binary, err := process.Build(ctx, "./test/framework/nodes/cmd/writer", p.options.Progress)
	if err != nil {
		return err
	}
	return p.importProgram(ctx, image, binary, "pause")
}

// importProgram gives the nodes an image of one static program.
func (p *Pool) importProgram(ctx context.Context, image, binary string, args ...string) error {
	content, err := os.ReadFile(binary)
	if err != nil {
		return err
	}
	var a archive
	if err := a.add(image, "program", content, args); err != nil {
		return err
	}
	text, err := a.bytes()
	if err != nil {
		return err
	}
	file := filepath.Join(p.Dir(), "image.tar")
	if err := os.WriteFile(file, text, 0o600); err != nil {
		return err
	}
	defer func() { _ = os.Remove(file) }()
	return p.ImportImages(ctx, file)
}

// writeImages writes the images as one archive in the format of docker save. Images of one program share a layer.
func writeImages(ctx context.Context, path string, progress io.Writer) error {
	var a archive
	for image, of := range images {
		content, err := programOf(ctx, of.program, of.flags, progress)
		if err == nil {
			err = a.add(image, of.program, content, of.args)
		}
		if err != nil {
			return fmt.Errorf("make images: %w", err)
		}
	}
	text, err := a.bytes()
	if err != nil {
		return fmt.Errorf("make images: %w", err)
	}
	return os.WriteFile(path, text, 0o644)
}

func programOf(ctx context.Context, program string, flags []string, progress io.Writer) ([]byte, error) {
	binary, err := process.Build(ctx, "./test/framework/nodes/cmd/"+program, progress, flags...)
	if err != nil {
		return nil, err
	}
	return os.ReadFile(binary)
}

// archive has images of the form that docker save writes.
type archive struct {
	entries  []entry
	manifest []map[string]any
	layers   map[string][]byte // by program
}

// add adds an image of one program.
func (a *archive) add(image, program string, content []byte, args []string) error {
	file := program + ".tar"
	if a.layers[file] == nil {
		layer, err := tarOf(entry{name: program, content: content, mode: 0o755})
		if err != nil {
			return err
		}
		if a.layers == nil {
			a.layers = map[string][]byte{}
		}
		a.layers[file] = layer
		a.entries = append(a.entries, entry{name: file, content: layer})
	}
	config, err := json.Marshal(map[string]any{
		"architecture": runtime.GOARCH, "os": "linux",
		"config": map[string]any{"Entrypoint": append([]string{"/" + program}, args...)},
		"rootfs": map[string]any{"type": "layers", "diff_ids": []string{"sha256:" + digest(a.layers[file])}},
	})
	if err != nil {
		return err
	}
	name := digest(config) + ".json"
	a.entries = append(a.entries, entry{name: name, content: config})
	a.manifest = append(a.manifest,
		map[string]any{"Config": name, "RepoTags": []string{image}, "Layers": []string{file}})
	return nil
}

func (a *archive) bytes() ([]byte, error) {
	index, err := json.Marshal(a.manifest)
	if err != nil {
		return nil, err
	}
	return tarOf(append(a.entries, entry{name: "manifest.json", content: index})...)
}

type entry struct {
	name    string
	content []byte
	mode    int64
}

func tarOf(entries ...entry) ([]byte, error) {
	var out bytes.Buffer
	archive := tar.NewWriter(&out)
	for _, e := range entries {
		err := archive.WriteHeader(&tar.Header{Name: e.name, Size: int64(len(e.content)), Mode: max(e.mode, 0o644)})
		if err == nil {
			_, err = archive.Write(e.content)
		}
		if err != nil {
			return nil, errors.Join(err, archive.Close())
		}
	}
	err := archive.Close() // it writes the end
	return out.Bytes(), err
}

func digest(content []byte) string {
	sum := sha256.Sum256(content)
	return hex.EncodeToString(sum[:])
}
