package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// helmPackage is compiled in the version of helmModules, the one used in the charts' tests.
const helmPackage, helmModules = "helm.sh/helm/v4/cmd/helm", "test/deploy/tools/go.mod"

const valuesFile = "values.yaml"

// makeCharts packages all charts with helm, with the version of the release.
func (r *release) makeCharts(ctx context.Context) error {
	into, err := r.folder("charts")
	if err != nil {
		return err
	}
	helm := r.helmCommand
	if helm == "" {
		helm = filepath.Join(r.scratch, "helm")
		if err := r.run(ctx, r.root, r.goCommand, "build", "-modfile="+helmModules, "-o", helm, helmPackage); err != nil {
			return fmt.Errorf("compile helm: %w", err)
		}
	}
	files, err := filepath.Glob(filepath.Join(r.root, "deploy", "charts", "*", "Chart.yaml"))
	if err != nil {
		return err
	}
	for _, file := range files {
		name := filepath.Base(filepath.Dir(file))
		if err := r.makeChart(ctx, helm, filepath.Dir(file), into); err != nil {
			return fmt.Errorf("chart %s: %w", name, err)
		}
	}
	return nil
}

// makeChart packages a copy of a chart after it has set the images in its values to the version.
func (r *release) makeChart(ctx context.Context, helm, chart, into string) error {
	filled := filepath.Join(r.scratch, "charts", filepath.Base(chart))
	if err := os.CopyFS(filled, os.DirFS(chart)); err != nil {
		return err
	}
	values := filepath.Join(filled, valuesFile)
	text, err := os.ReadFile(values)
	if err != nil {
		return err
	}
	text, _ = r.images.fill(text)
	if err := r.images.complete(filepath.Join(chart, valuesFile), text); err != nil {
		return err
	}
	if err := os.WriteFile(values, text, 0o644); err != nil {
		return err
	}
	return r.run(ctx, r.root, helm, "package", filled, "--version="+chartVersion(r.version), "--app-version="+r.version,
		"--destination="+into)
}

// run runs a program without the user's helm settings, and returns its complaints in the error.
func (r *release) run(ctx context.Context, folder, program string, args ...string) error {
	command := exec.CommandContext(ctx, program, args...)
	command.Dir = folder
	home := filepath.Join(r.scratch, "home")
	command.Env = append(r.environment(), "HELM_CONFIG_HOME="+home, "HELM_CACHE_HOME="+home, "HELM_DATA_HOME="+home)
	var complaints bytes.Buffer
	command.Stderr = &complaints
	if err := command.Run(); err != nil {
		return fmt.Errorf("%w: %s", err, strings.TrimSpace(complaints.String()))
	}
	return nil
}
