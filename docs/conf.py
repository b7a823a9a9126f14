"""Sphinx: the documentation as a site, `make site`. The sources are the Markdown files of the
repository, which are read as they are on a forge, too; a link or an anchor that leads nowhere is a
warning, and a warning fails the build."""

project = "Terrarium"
html_title = "Terrarium"
copyright = "the authors of Terrarium, MIT licence"

extensions = ["myst_parser"]
root_doc = "docs/index"
# The source folder is that of the repository, so that links such as ../SECURITY.md work.
include_patterns = [
    *("docs/**.md", "README.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md"),
    *("examples/README.md", "examples/*/README.md", "benchmarks/questions/reading/README.md"),
]
exclude_patterns = ["docs/img"]
html_theme = "furo"
html_extra_path = ["redirect"]  # /index.html, which leads to docs/index.html
html_copy_source = False
html_show_sphinx = False

myst_heading_anchors = 4  # anchors of headings as a forge makes them
myst_enable_extensions = ["colon_fence"]
nitpicky = True
