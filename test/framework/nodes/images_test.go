//go:build linux

package nodes

import (
	"archive/tar"
	"bytes"
	"io"
	"testing"
)

func TestImagesWithSameFilesShareLayer(t *testing.T) {
	t.Parallel()
	files := []entry{{name: "bin/"}, {name: "bin/sh", link: "busybox"},
		{name: "bin/busybox", content: []byte("x"), mode: 0o755}}
	var a archive
	for image, of := range map[string][]entry{"a:1": files, "b:1": files, "c:1": files[:1]} {
		if err := a.addImage(image, of, nil, []string{"sh"}); err != nil {
			t.Fatal(err)
		}
	}
	if len(a.layers) != 2 || len(a.manifest) != 3 || len(a.entries) != 2+3 {
		t.Errorf("%d layers, %d images, %d files", len(a.layers), len(a.manifest), len(a.entries))
	}
	layer, err := tarOf(files...)
	if err != nil {
		t.Fatal(err)
	}
	reader := tar.NewReader(bytes.NewReader(layer))
	for _, want := range []byte{tar.TypeDir, tar.TypeSymlink, tar.TypeReg} {
		h, err := reader.Next()
		if err != nil || h.Typeflag != want {
			t.Fatalf("%+v, %v, want type %c", h, err, want)
		}
	}
	if _, err := reader.Next(); err != io.EOF {
		t.Errorf("%v, want the end", err)
	}
}
