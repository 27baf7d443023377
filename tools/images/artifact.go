package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/partial"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

const (
	sbomType       = "application/spdx+json"
	provenanceJSON = "application/vnd.in-toto+json"
	// emptyJSON is the media type of the configuration of an artifact ("guidance for an empty descriptor", image
	// specification 1.1).
	emptyJSON = "application/vnd.oci.empty.v1+json"
)

// artifact is a file that refers to an image, which registries list as a referrer. It is a separate type, because the
// library's images never have an empty configuration.
type artifact struct {
	manifest []byte
	file     v1.Layer
}

// document is a file that describes an image, such as its SBOM.
type document struct {
	kind, name string
	content    []byte
}

// attach returns an artifact with the document that refers to an image or index.
func attach(to v1.Descriptor, d document, created time.Time) (v1.Image, error) {
	file := static.NewLayer(d.content, types.MediaType(d.kind))
	described, err := partial.Descriptor(file)
	if err != nil {
		return nil, fmt.Errorf("attach %s: %w", d.name, err)
	}
	// Tools use this name for the file when they pull it.
	described.Annotations = map[string]string{"org.opencontainers.image.title": d.name}
	configuration, size, err := v1.SHA256(bytes.NewReader([]byte("{}")))
	if err != nil {
		return nil, fmt.Errorf("attach %s: %w", d.name, err)
	}
	manifest, err := json.Marshal(v1.Manifest{
		SchemaVersion: 2, MediaType: types.OCIManifestSchema1, ArtifactType: d.kind,
		Config:      v1.Descriptor{MediaType: emptyJSON, Digest: configuration, Size: size},
		Layers:      []v1.Descriptor{*described},
		Subject:     &v1.Descriptor{MediaType: to.MediaType, Digest: to.Digest, Size: to.Size},
		Annotations: map[string]string{createdAnnotation: created.Format(time.RFC3339)},
	})
	if err != nil {
		return nil, fmt.Errorf("attach %s: %w", d.name, err)
	}
	return partial.CompressedToImage(artifact{manifest: manifest, file: file})
}

func (a artifact) RawManifest() ([]byte, error)        { return a.manifest, nil }
func (a artifact) RawConfigFile() ([]byte, error)      { return []byte("{}"), nil }
func (a artifact) MediaType() (types.MediaType, error) { return types.OCIManifestSchema1, nil }

func (a artifact) LayerByDigest(digest v1.Hash) (partial.CompressedLayer, error) {
	own, err := a.file.Digest()
	if err == nil && own != digest {
		err = fmt.Errorf("there is no blob %s", digest)
	}
	return a.file, err
}
