"""`rlviz site`: the explorers, recorded runs, algorithms, lessons and verdicts as static pages that need no server.

In: the folder of the notebooks, and the library's own algorithms, explorers and recordings. Out: a folder of HTML with one script
and one style sheet. `build` lists and writes the files; `html` is the frame of every page; `pages`, `lessons` and `teaching`
make the pages, `cells` turns a notebook's cells into a page's, `search` the index. Begin with `build`, then `pages`.
"""
