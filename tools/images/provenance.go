package main

import (
	"bytes"
	"encoding/json"
	"fmt"

	provenance "github.com/in-toto/attestation/go/predicates/provenance/v1"
	intoto "github.com/in-toto/attestation/go/v1"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"
)

const (
	provenanceType = "https://slsa.dev/provenance/v1"
	// buildType is the page that explains the parameters, and how to repeat the build.
	buildType = home + "/blob/main/docs/how-to/images.md#provenance"
	// builderID names this program, run by anyone: the statement is not signed and claims no more than the program
	// knows.
	builderID = home + "/tree/main/tools/images"
)

// makeProvenance returns a statement about the build of the images. It contains neither time nor machine nor build
// id, so that the same build yields the same statement.
func makeProvenance(o options, p program, from source, goVersion string, all []subject) ([]byte, error) {
	external, err := structpb.NewStruct(map[string]any{
		"program": p.pkg, "version": from.version, "revision": from.revision,
		"platforms": list(o.platforms), "buildFlags": list(o.buildFlags),
		"sourceDateEpoch": fmt.Sprint(from.created.Unix()),
	})
	if err != nil {
		return nil, fmt.Errorf("provenance: %w", err)
	}
	internal, err := structpb.NewStruct(map[string]any{"goVersion": goVersion, "environment": list(fixed)})
	if err != nil {
		return nil, fmt.Errorf("provenance: %w", err)
	}
	repository := &intoto.ResourceDescriptor{Uri: "git+" + home}
	if commit := from.commit(); commit != "" {
		repository.Digest = map[string]string{intoto.AlgorithmGitCommit.String(): commit}
	}
	made := &provenance.Provenance{
		BuildDefinition: &provenance.BuildDefinition{BuildType: buildType, ExternalParameters: external,
			InternalParameters: internal, ResolvedDependencies: []*intoto.ResourceDescriptor{repository}},
		RunDetails: &provenance.RunDetails{Builder: &provenance.Builder{Id: builderID}},
	}
	if err := made.Validate(); err != nil {
		return nil, fmt.Errorf("provenance: %w", err)
	}
	predicate := &structpb.Struct{}
	text, err := protojson.Marshal(made)
	if err == nil {
		err = protojson.Unmarshal(text, predicate)
	}
	if err != nil {
		return nil, fmt.Errorf("provenance: %w", err)
	}
	statement := &intoto.Statement{Type: intoto.StatementTypeUri, PredicateType: provenanceType, Predicate: predicate}
	for _, d := range all {
		statement.Subject = append(statement.Subject, &intoto.ResourceDescriptor{Name: d.name,
			Digest: map[string]string{d.Digest.Algorithm: d.Digest.Hex}})
	}
	if err := statement.Validate(); err != nil {
		return nil, fmt.Errorf("provenance: %w", err)
	}
	return stable(statement)
}

// list returns the texts of values as a list for a message.
func list[T any](all []T) []any {
	texts := []any{}
	for _, one := range all {
		texts = append(texts, fmt.Sprint(one))
	}
	return texts
}

// stable returns the JSON of a message in a stable form, because protojson varies its spaces at random.
func stable(message proto.Message) ([]byte, error) {
	text, err := protojson.Marshal(message)
	if err != nil {
		return nil, err
	}
	var indented bytes.Buffer
	if err := json.Indent(&indented, text, "", "  "); err != nil {
		return nil, err
	}
	return append(indented.Bytes(), '\n'), nil
}
