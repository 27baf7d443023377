// Package picture draws the pictures of docs/pictures: the actions of each actor from the top to the bottom, with a
// line for each actor. The caller gives the contents, and the package computes the places, so that no texts overlap and
// each arrow ends at its target. A picture has its own background, light or dark as its reader prefers, and says
// nothing by colour alone.
package picture
