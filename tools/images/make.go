package main

import (
	"context"
	"crypto/sha256"
	"debug/buildinfo"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/partial"
)

// layoutFolder is the folder of the OCI image layout in the folder of a program.
const layoutFolder = "oci"

// platformImage is the image of one platform, with its SBOM.
type platformImage struct {
	v1.Image
	platform v1.Platform
	// packed is the compressed size of the program in the image.
	packed    int64
	sbom      document
	goVersion string
}

// subject is the image or index that documents describe and refer to.
type subject struct {
	v1.Descriptor
	name string
	// about holds the documents that describe only this subject.
	about []document
}

// makeProgram compiles a program for all platforms and writes its folder. It replaces an existing folder only after
// all parts are complete.
func makeProgram(ctx context.Context, o options, from source, p program, reference string) ([]row, error) {
	folder := filepath.Join(o.output, p.name)
	if err := replaceable(folder); err != nil {
		return nil, err
	}
	scratch, err := os.MkdirTemp(o.output, ".making-")
	if err != nil {
		return nil, err
	}
	defer func() { _ = os.RemoveAll(scratch) }()
	var images []platformImage
	for _, platform := range o.platforms {
		image, err := makePlatform(ctx, o, from, p, platform, filepath.Join(scratch, "program"))
		if err != nil {
			return nil, fmt.Errorf("%s: %w", platform, err)
		}
		images = append(images, image)
	}
	made := filepath.Join(scratch, p.name)
	if err := os.Mkdir(made, 0o755); err != nil {
		return nil, err
	}
	rows, err := write(o, from, p, images, made, reference)
	if err != nil {
		return nil, err
	}
	if err := os.RemoveAll(folder); err != nil {
		return nil, err
	}
	return rows, os.Rename(made, folder)
}

// replaceable rejects an existing folder that this program has not written.
func replaceable(folder string) error {
	_, err := os.Lstat(folder)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err == nil {
		_, err = os.Stat(filepath.Join(folder, layoutFolder, "oci-layout"))
	}
	if err != nil {
		return fmt.Errorf("%s is in the way, and was not written by this program: %w; remove it, or choose another "+
			"folder by --output", folder, err)
	}
	return nil
}

// makePlatform compiles a program into the file, and returns its image.
func makePlatform(ctx context.Context, o options, from source, p program, platform v1.Platform, file string) (
	platformImage, error) {
	fmt.Fprintf(o.progress, "compiling %s for %s\n", p.name, platform)
	info, err := compile(ctx, o, p, platform, file)
	if err != nil {
		return platformImage{}, err
	}
	return packPlatform(from, p, platform, file, info)
}

func packPlatform(from source, p program, platform v1.Platform, file string, info *buildinfo.BuildInfo) (
	platformImage, error) {
	content, err := os.ReadFile(file)
	if err != nil {
		return platformImage{}, err
	}
	name := p.name + "-" + strings.ReplaceAll(platform.String(), "/", "-")
	of := platformImage{platform: platform, goVersion: info.GoVersion}
	sbom, err := makeSBOM(p, from, name, info, sha256.Sum256(content))
	if err != nil {
		return platformImage{}, err
	}
	of.sbom = document{sbomType, name + ".spdx.json", sbom}
	layer, err := packLayer(p.name, content, from.created)
	if err == nil {
		of.packed, err = layer.Size()
	}
	if err != nil {
		return platformImage{}, fmt.Errorf("pack: %w", err)
	}
	of.Image, err = makeImage(p, from, platform, layer)
	return of, err
}

// write writes all files of a program: the documents, the layout, and its archive.
func write(o options, from source, p program, images []platformImage, folder, reference string) ([]row, error) {
	index := makeIndex(p, from, images)
	subjects, rows, err := describe(p, index, images, reference)
	if err != nil {
		return nil, err
	}
	statement, err := makeProvenance(o, p, from, images[0].goVersion, subjects)
	if err != nil {
		return nil, err
	}
	provenance := document{provenanceJSON, p.name + ".provenance.json", statement}
	documents := []document{provenance}
	var artifacts []v1.Image
	for _, s := range subjects {
		for _, d := range append([]document{provenance}, s.about...) {
			one, err := attach(s.Descriptor, d, from.created)
			if err != nil {
				return nil, err
			}
			artifacts = append(artifacts, one)
		}
		documents = append(documents, s.about...)
	}
	for _, d := range documents {
		if err := os.WriteFile(filepath.Join(folder, d.name), d.content, 0o644); err != nil {
			return nil, err
		}
	}
	oci := filepath.Join(folder, layoutFolder)
	if err := writeLayout(oci, from, index, artifacts, reference); err != nil {
		return nil, fmt.Errorf("write the image layout: %w", err)
	}
	return rows, archive(oci, filepath.Join(folder, p.name+".tar"), from.created)
}

// describe returns the subjects of the documents, and the rows of the table.
func describe(p program, index v1.ImageIndex, images []platformImage, reference string) ([]subject, []row, error) {
	described, err := partial.Descriptor(index)
	if err != nil {
		return nil, nil, err
	}
	subjects := []subject{{Descriptor: *described, name: p.name}}
	rows := []row{{image: reference, platform: "all", digest: described.Digest.String()}}
	for _, of := range images {
		if described, err = partial.Descriptor(of); err != nil {
			return nil, nil, err
		}
		platform := of.platform.String()
		subjects = append(subjects, subject{*described, p.name + " " + platform, []document{of.sbom}})
		rows = append(rows, row{reference, platform, of.packed, described.Digest.String()})
		rows[0].size += of.packed
	}
	return subjects, rows, nil
}
