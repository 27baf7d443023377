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
	"runtime"

	"github.com/csi-reclaimer/csi-reclaimer/test/framework/process"
)

// images are what the nodes have: each one program and how it is started. A program that uses the network is linked
// without the C library, which is not in the image.
var images = map[string]struct {
	program string
	flags   []string
	args    []string
}{
	PauseImage:  {program: "writer", args: []string{"pause"}},
	WriterImage: {program: "writer"},
	FencerImage: {program: "fencer", flags: []string{"-tags=netgo"}},
}

// writeImages writes the images as one archive of the form that docker save writes. Those of one program share a layer.
func writeImages(ctx context.Context, path string, progress io.Writer) error {
	archive, err := archiveOf(ctx, progress)
	if err != nil {
		return fmt.Errorf("make images: %w", err)
	}
	return os.WriteFile(path, archive, 0o644)
}

func archiveOf(ctx context.Context, progress io.Writer) ([]byte, error) {
	var entries []entry
	var manifest []map[string]any
	layers := map[string][]byte{} // by program
	for image, of := range images {
		file := of.program + ".tar"
		if layers[file] == nil {
			layer, err := layerOf(ctx, of.program, of.flags, progress)
			if err != nil {
				return nil, err
			}
			layers[file] = layer
			entries = append(entries, entry{name: file, content: layer})
		}
		config, err := json.Marshal(map[string]any{
			"architecture": runtime.GOARCH, "os": "linux",
			"config": map[string]any{"Entrypoint": append([]string{"/" + of.program}, of.args...)},
			"rootfs": map[string]any{"type": "layers", "diff_ids": []string{"sha256:" + digest(layers[file])}},
		})
		if err != nil {
			return nil, err
		}
		name := digest(config) + ".json"
		entries = append(entries, entry{name: name, content: config})
		manifest = append(manifest,
			map[string]any{"Config": name, "RepoTags": []string{image}, "Layers": []string{file}})
	}
	index, err := json.Marshal(manifest)
	if err != nil {
		return nil, err
	}
	return tarOf(append(entries, entry{name: "manifest.json", content: index})...)
}

// layerOf returns the layer that has a program and nothing else.
func layerOf(ctx context.Context, program string, flags []string, progress io.Writer) ([]byte, error) {
	binary, err := process.Build(ctx, "./test/framework/nodes/cmd/"+program, progress, flags...)
	if err != nil {
		return nil, err
	}
	content, err := os.ReadFile(binary)
	if err != nil {
		return nil, err
	}
	return tarOf(entry{name: program, content: content, mode: 0o755})
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
