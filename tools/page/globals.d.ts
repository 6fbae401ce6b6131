// What index.html loads beside the modules.
interface Window {
  uPlot: any;
}
