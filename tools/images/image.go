package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

const (
	// user is numeric, because with runAsNonRoot the kubelet cannot verify that a user name is not root.
	user    = "65532:65532"
	licence = "Apache-2.0"
	// createdAnnotation is set on everything that this program creates.
	createdAnnotation = "org.opencontainers.image.created"
)

// labels returns the annotations of the OCI image specification (annotations.md), which become labels of the image
// and annotations of its manifest and index.
func labels(p program, from source) map[string]string {
	all := map[string]string{
		createdAnnotation:                      from.created.Format(time.RFC3339),
		"org.opencontainers.image.title":       p.name,
		"org.opencontainers.image.description": p.description,
		"org.opencontainers.image.version":     from.version,
		"org.opencontainers.image.source":      home,
		"org.opencontainers.image.licenses":    licence,
	}
	if from.revision != "" {
		all["org.opencontainers.image.revision"] = from.revision
	}
	return all
}

// packLayer returns a layer with the program at the root and no other file. The program belongs to root, so the
// image's user can run it, but not change it.
func packLayer(name string, program []byte, created time.Time) (v1.Layer, error) {
	var packed bytes.Buffer
	archive := tar.NewWriter(&packed)
	if err := archive.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: name, Size: int64(len(program)), Mode: 0o555,
		ModTime: created, Format: tar.FormatUSTAR}); err != nil {
		return nil, err
	}
	if _, err := archive.Write(program); err != nil {
		return nil, err
	}
	if err := archive.Close(); err != nil {
		return nil, err
	}
	return tarball.LayerFromOpener(func() (io.ReadCloser, error) {
		return io.NopCloser(bytes.NewReader(packed.Bytes())), nil
	}, tarball.WithMediaType(types.OCILayer), tarball.WithCompressionLevel(gzip.DefaultCompression),
		tarball.WithCompressedCaching)
}

// makeImage returns the image of one platform.
func makeImage(p program, from source, platform v1.Platform, layer v1.Layer) (v1.Image, error) {
	image := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
	image, err := mutate.ConfigFile(image, &v1.ConfigFile{
		OS: platform.OS, Architecture: platform.Architecture, Created: v1.Time{Time: from.created},
		Config: v1.Config{User: user, Entrypoint: []string{"/" + p.name}, Labels: labels(p, from)},
		RootFS: v1.RootFS{Type: "layers"},
	})
	if err != nil {
		return nil, fmt.Errorf("configure: %w", err)
	}
	image, err = mutate.Append(image, mutate.Addendum{Layer: layer, MediaType: types.OCILayer,
		History: v1.History{Created: v1.Time{Time: from.created}, CreatedBy: "make images"}})
	if err != nil {
		return nil, fmt.Errorf("add the program: %w", err)
	}
	return mutate.Annotations(image, labels(p, from)).(v1.Image), nil
}

// makeIndex returns the index of the images of all platforms, in the order of their builds.
func makeIndex(p program, from source, images []platformImage) v1.ImageIndex {
	index := mutate.IndexMediaType(empty.Index, types.OCIImageIndex)
	for _, of := range images {
		index = mutate.AppendManifests(index, mutate.IndexAddendum{Add: of,
			Descriptor: v1.Descriptor{Platform: &of.platform}})
	}
	return mutate.Annotations(index, labels(p, from)).(v1.ImageIndex)
}
