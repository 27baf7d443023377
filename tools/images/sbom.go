package main

import (
	"bytes"
	"debug/buildinfo"
	"encoding/hex"
	"fmt"
	"runtime/debug"
	"strings"
	"time"

	packageurl "github.com/package-url/packageurl-go"
	spdxjson "github.com/spdx/tools-golang/json"
	"github.com/spdx/tools-golang/spdx/v2/common"
	spdx "github.com/spdx/tools-golang/spdx/v2/v2_3"
	"github.com/spdx/tools-golang/spdxlib"
)

// unknown is SPDX's value for unknown data, such as the licences of modules, which a program does not record.
const unknown = "NOASSERTION"

// makeSBOM lists the content of a program as the go command recorded it: its modules and the standard library, where
// sum is the program's SHA-256.
func makeSBOM(p program, from source, name string, info *buildinfo.BuildInfo, sum [32]byte) ([]byte, error) {
	sha := hex.EncodeToString(sum[:])
	main := spdxPackage("main", info.Main.Path, from.version, "")
	main.PackageName, main.PackageFileName = p.name, "/"+p.name
	main.PackageChecksums = []common.Checksum{{Algorithm: common.SHA256, Value: sha}}
	main.PrimaryPackagePurpose = "APPLICATION"
	main.PackageLicenseConcluded, main.PackageLicenseDeclared = licence, licence
	document := &spdx.Document{
		SPDXVersion: spdx.Version, DataLicense: spdx.DataLicense, SPDXIdentifier: "DOCUMENT", DocumentName: name,
		// SPDX requires a unique URI, which need not be an address. The program's digest makes it unique.
		DocumentNamespace: home + "/spdx/" + name + "-" + sha,
		CreationInfo: &spdx.CreationInfo{Created: from.created.Format(time.RFC3339),
			Creators: []common.Creator{{CreatorType: "Tool", Creator: "csi-reclaimer-images"}}},
		Packages:      []*spdx.Package{main},
		Relationships: []*spdx.Relationship{relate("DOCUMENT", "DESCRIBES", "main")},
	}
	add := func(id, path, version, origin string) {
		document.Packages = append(document.Packages, spdxPackage(id, path, version, origin))
		document.Relationships = append(document.Relationships, relate("main", "DEPENDS_ON", id))
	}
	add("stdlib", "stdlib", strings.TrimPrefix(info.GoVersion, "go"), "the standard library of "+info.GoVersion)
	for i, module := range info.Deps {
		path, version, origin := resolve(module)
		add(fmt.Sprintf("module-%d", i+1), path, version, origin)
	}
	if err := spdxlib.ValidateDocument(document); err != nil {
		return nil, fmt.Errorf("SBOM: %w", err)
	}
	var text bytes.Buffer
	if err := spdxjson.Write(document, &text, spdxjson.Indent("  "), spdxjson.EscapeHTML(false)); err != nil {
		return nil, fmt.Errorf("SBOM: %w", err)
	}
	return text.Bytes(), nil
}

// resolve returns the compiled module and its known origin. A folder that replaces a module has no version of its
// own.
func resolve(module *debug.Module) (path, version, origin string) {
	sum := module.Sum
	path, version = module.Path, module.Version
	if with := module.Replace; with != nil {
		if with.Version == "" || with.Version == "(devel)" {
			return path, version, "replaced by a local folder"
		}
		path, version, sum = with.Path, with.Version, with.Sum
		origin = "replaces " + module.Path + " " + module.Version + "; "
	}
	return path, version, origin + "go.sum " + sum
}

func spdxPackage(id, path, version, origin string) *spdx.Package {
	namespace, name := "", path
	if at := strings.LastIndex(path, "/"); at >= 0 {
		namespace, name = path[:at], path[at+1:]
	}
	purl := packageurl.NewPackageURL(packageurl.TypeGolang, namespace, name, version, nil, "")
	return &spdx.Package{
		PackageName: path, PackageSPDXIdentifier: common.ElementID(id), PackageVersion: version,
		PackageSourceInfo: origin, PackageDownloadLocation: unknown, IsFilesAnalyzedTagPresent: true,
		PackageLicenseConcluded: unknown, PackageLicenseDeclared: unknown, PackageCopyrightText: unknown,
		PrimaryPackagePurpose: "LIBRARY",
		PackageExternalReferences: []*spdx.PackageExternalReference{{Category: common.CategoryPackageManager,
			RefType: common.TypePackageManagerPURL, Locator: purl.ToString()}},
	}
}

func relate(a, how, b string) *spdx.Relationship {
	return &spdx.Relationship{RefA: common.DocElementID{ElementRefID: common.ElementID(a)}, Relationship: how,
		RefB: common.DocElementID{ElementRefID: common.ElementID(b)}}
}
