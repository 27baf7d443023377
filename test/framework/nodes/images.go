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

// program is where the images have the one program that is in them.
const program = "writer"

// writeImages writes the images as one archive of the form that docker save writes. They share a layer.
func writeImages(ctx context.Context, path string, progress io.Writer) error {
	binary, err := process.Build(ctx, "./test/framework/nodes/cmd/writer", progress)
	if err != nil {
		return err
	}
	content, err := os.ReadFile(binary)
	if err != nil {
		return fmt.Errorf("make images: %w", err)
	}
	layer, err := tarOf(entry{name: program, content: content, mode: 0o755})
	if err != nil {
		return fmt.Errorf("make images: %w", err)
	}
	entries := []entry{{name: "layer.tar", content: layer}}
	var manifest []map[string]any
	for image, command := range map[string][]string{
		PauseImage: {"/" + program, "pause"}, WriterImage: {"/" + program},
	} {
		config, err := json.Marshal(map[string]any{
			"architecture": runtime.GOARCH, "os": "linux", "config": map[string]any{"Entrypoint": command},
			"rootfs": map[string]any{"type": "layers", "diff_ids": []string{"sha256:" + digest(layer)}},
		})
		if err != nil {
			return fmt.Errorf("make images: %w", err)
		}
		name := digest(config) + ".json"
		entries = append(entries, entry{name: name, content: config})
		manifest = append(manifest,
			map[string]any{"Config": name, "RepoTags": []string{image}, "Layers": []string{"layer.tar"}})
	}
	index, err := json.Marshal(manifest)
	if err != nil {
		return fmt.Errorf("make images: %w", err)
	}
	archive, err := tarOf(append(entries, entry{name: "manifest.json", content: index})...)
	if err != nil {
		return fmt.Errorf("make images: %w", err)
	}
	return os.WriteFile(path, archive, 0o644)
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
