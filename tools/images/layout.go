package main

import (
	"archive/tar"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"text/tabwriter"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
)

// writeLayout writes the index, named as containerd and other tools expect it, and the artifacts that refer to it.
func writeLayout(folder string, from source, index v1.ImageIndex, artifacts []v1.Image, reference string) error {
	path, err := layout.Write(folder, empty.Index)
	if err != nil {
		return err
	}
	if err := path.AppendIndex(index, layout.WithAnnotations(map[string]string{
		"org.opencontainers.image.ref.name": from.version,
		"io.containerd.image.name":          reference,
	})); err != nil {
		return err
	}
	for _, one := range artifacts {
		if err := path.AppendImage(one); err != nil {
			return err
		}
	}
	return nil
}

// archive packs a folder without traces of this machine: fixed owner, mode and time, and files sorted by name.
func archive(folder, file string, created time.Time) (err error) {
	out, err := os.Create(file)
	if err != nil {
		return err
	}
	packed := tar.NewWriter(out)
	err = filepath.WalkDir(folder, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		return add(packed, folder, path, created)
	})
	if err == nil {
		err = packed.Close()
	}
	if closed := out.Close(); err == nil {
		err = closed
	}
	if err != nil {
		return fmt.Errorf("write %s: %w", file, err)
	}
	return nil
}

func add(packed *tar.Writer, folder, path string, created time.Time) error {
	name, err := filepath.Rel(folder, path)
	if err != nil {
		return err
	}
	from, err := os.Open(path)
	if err != nil {
		return err
	}
	defer func() { _ = from.Close() }()
	info, err := from.Stat()
	if err != nil {
		return err
	}
	if err := packed.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: filepath.ToSlash(name), Size: info.Size(),
		Mode: 0o644, ModTime: created, Format: tar.FormatUSTAR}); err != nil {
		return err
	}
	_, err = io.Copy(packed, from)
	return err
}

type row struct {
	image, platform string
	size            int64
	digest          string
}

func table(out io.Writer, rows []row) error {
	lines := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(lines, "IMAGE\tPLATFORM\tSIZE\tDIGEST")
	for _, r := range rows {
		fmt.Fprintf(lines, "%s\t%s\t%s\t%s\n", r.image, r.platform, megabytes(r.size), r.digest)
	}
	return lines.Flush()
}

func megabytes(size int64) string { return fmt.Sprintf("%.1f MB", float64(size)/1e6) }
